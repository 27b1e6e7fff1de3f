"""What drafting costs within a step, and how fast speculation can be at all."""
