"""Training a small DSpark draft for a target, from text that the target writes itself."""
