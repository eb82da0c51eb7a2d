//! The recipes and their examples, beside faults and beside each other.

mod examples;
mod recipes;
