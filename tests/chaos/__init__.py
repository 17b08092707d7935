"""Workers behind a load balancer share one store, and are killed at random: nothing is lost, nothing is doubled."""
