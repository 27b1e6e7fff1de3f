"""What only vLLM's V1 runner needs: drafts in the worker, verification by the plugin, trees, rollback. Frozen."""
