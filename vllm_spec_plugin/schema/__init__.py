"""What configuration sections are built from."""
