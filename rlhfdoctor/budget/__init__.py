"""What a configuration will need: model shapes, bytes by role and phase, limits."""
