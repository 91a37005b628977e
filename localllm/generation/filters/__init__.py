"""The samplers of a chain that are off by default, a file for each idea. Each is imported by the first chain that has it."""
