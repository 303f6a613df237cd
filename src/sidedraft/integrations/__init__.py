"""One package an inference engine; each may import its engine, and no other part of Sidedraft does."""
