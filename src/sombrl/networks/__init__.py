"""Small networks and what they are made of."""
