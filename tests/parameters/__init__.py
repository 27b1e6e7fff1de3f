"""Parameters of requests, and what each way to draft does with them."""
