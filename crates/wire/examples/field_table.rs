//! Prints what the crate believes of the wire (messages, constants, names) for the comparison with
//! Hadoop's descriptors.

fn main() {
    print!("{}", hayloft_wire::field_table::field_table());
}
