//! Block recovery as the primary node.

mod rules;
#[cfg(test)]
mod rules_tests;
