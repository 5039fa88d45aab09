//! Prints every message, field and enum of the crate for the comparison with Hadoop's descriptors.

fn main() {
    print!("{}", hayloft_wire::schema::field_table());
}
