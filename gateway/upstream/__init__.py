"""How an upstream is spoken to. `protocol` is what others see; `generate` sends the one POST, `lookup` can only ask (decision 0002)."""
