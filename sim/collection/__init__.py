"""Episodes of experts: collection of demonstrations, disturbances, and clips of stages."""
