"""The field: device, middle and learner, really apart."""
