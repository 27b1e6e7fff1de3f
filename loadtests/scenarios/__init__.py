"""What users ask for."""
