"""What a configuration will need: model shapes, bytes by role in each phase, limits."""
