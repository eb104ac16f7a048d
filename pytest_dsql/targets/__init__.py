"""What is measured: how a target comes to exist and how it goes away."""
