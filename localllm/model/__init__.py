"""ModelConfig, Program, and the one forward pass that leads from one to the other."""
