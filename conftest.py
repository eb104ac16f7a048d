"""What the project's own tests need from pytest itself."""

pytest_plugins = ["pytester"]
