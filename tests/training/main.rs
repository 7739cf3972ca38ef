//! Training: layouts, optimizers, functions of neural networks, and derivatives by the user's rules.

mod custom_rules;
