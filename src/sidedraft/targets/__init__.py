"""The target model as an inference engine runs it, with its residual stream tapped."""
