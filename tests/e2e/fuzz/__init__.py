"""Random combinations of the parameters of requests, sent to a server twice: with drafts and with `spec: off`."""
