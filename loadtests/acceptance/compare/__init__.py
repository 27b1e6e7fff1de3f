"""The same requests measured by these load tests and by `vllm bench serve`."""
