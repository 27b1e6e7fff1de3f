"""What the server says of a load test."""
