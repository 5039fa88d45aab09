//! Services towards NameNodes.
