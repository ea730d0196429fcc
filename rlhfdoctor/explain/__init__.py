"""The budget, run backwards: measured bytes of processes -> the components that explain them."""
