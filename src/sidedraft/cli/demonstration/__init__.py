"""What `sidedraft demo` consists of: assets, a server process, two arms, two tables."""
