"""An OpenAI-compatible server without a model, so that load tools are tested in seconds."""
