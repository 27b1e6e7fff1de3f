"""`vllm-spec certify`: whether outputs with the plugin are distributed as without, for any model on any machine."""
