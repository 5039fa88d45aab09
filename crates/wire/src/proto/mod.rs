//! Hadoop's protocol messages, hand-written for prost.
//!
//! Names follow Hadoop's, without the `Proto` suffix and in Rust's case; modules follow Hadoop's
//! `.proto` files. Each struct is declared inside `wire_messages!`, which makes from one text both
//! the prost message and its [`crate::schema::MessageDesc`]. The description feeds two things that
//! therefore cannot drift from what is encoded. One is the bounded decoder of [`crate::frame`]. The
//! other is the table (the example `field_table`) that a Java test compares with Hadoop's own
//! descriptors.
//!
//! Fields that Hadoop marks `required` are plain values; the bounded decoder rejects a message that
//! lacks one, as Hadoop does. Optional scalar fields have a getter of the same name that applies
//! Hadoop's default. Enum fields are `i32` on the struct (as prost has it): the getter maps an
//! unknown value to the default, `TryFrom<i32>` tells the truth.

pub mod client;
pub mod clientdatanode;
pub mod datanode;
pub mod datatransfer;
pub mod file_status;
pub mod fsimage;
pub mod hdfs;
pub mod hdfs_server;
pub mod interdatanode;
pub mod namespace;
pub mod reconfiguration;
pub mod rpc;
pub mod security;

use crate::schema::{EnumDesc, MessageDesc};

/// Every message of this crate, by module.
pub const MESSAGES: &[&[&MessageDesc]] = &[
    client::MESSAGES,
    clientdatanode::MESSAGES,
    datanode::MESSAGES,
    datatransfer::MESSAGES,
    file_status::MESSAGES,
    fsimage::MESSAGES,
    hdfs::MESSAGES,
    hdfs_server::MESSAGES,
    interdatanode::MESSAGES,
    namespace::MESSAGES,
    reconfiguration::MESSAGES,
    rpc::MESSAGES,
    security::MESSAGES,
];

/// Every enum of this crate, by module.
pub const ENUMS: &[&[&EnumDesc]] = &[
    client::ENUMS,
    datanode::ENUMS,
    datatransfer::ENUMS,
    file_status::ENUMS,
    fsimage::ENUMS,
    hdfs::ENUMS,
    hdfs_server::ENUMS,
    namespace::ENUMS,
    rpc::ENUMS,
];

/// Declares prost messages together with their descriptions.
///
/// `@skip_debug` before a struct leaves its `Debug` to be written by hand: it holds a secret.
macro_rules! wire_messages {
    ($(
        $(#[doc = $doc:literal])*
        $(@$skip_debug:ident)?
        pub struct $name:ident = $full:literal {
            $(
                $(#[doc = $field_doc:literal])*
                #[prost($($attr:tt)*)]
                pub $field:ident : $ty:ty
            ),* $(,)?
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[doc = ""]
            #[doc = concat!("Hadoop's `", $full, "`.")]
            #[allow(missing_docs, reason = "fields carry the names of Hadoop's definition")]
            #[derive(Clone, PartialEq, ::prost::Message)]
            $(#[prost($skip_debug)])?
            pub struct $name {
                $(
                    $(#[doc = $field_doc])*
                    #[prost($($attr)*)]
                    pub $field: $ty,
                )*
            }

            impl $crate::schema::Described for $name {
                const DESC: Option<&'static $crate::schema::MessageDesc> =
                    Some(&$crate::schema::MessageDesc::new(
                        $full,
                        ::core::mem::size_of::<$name>(),
                        &[$(
                            $crate::schema::FieldDesc::parse(
                                stringify!($field),
                                stringify!($($attr)*),
                                <$ty as $crate::schema::Described>::DESC,
                            ),
                        )*],
                    ));
            }

            impl $crate::schema::WireMessage for $name {}
        )*

        pub(crate) const MESSAGES: &[&$crate::schema::MessageDesc] = &[$(
            match <$name as $crate::schema::Described>::DESC {
                Some(desc) => desc,
                None => panic!("a message describes itself"),
            },
        )*];
    };
}
pub(crate) use wire_messages;

/// Declares prost enums together with their descriptions.
macro_rules! wire_enums {
    ($(
        $(#[doc = $doc:literal])*
        pub enum $name:ident = $full:literal {
            $(
                $(#[doc = $value_doc:literal])*
                $value:ident = $number:literal
            ),* $(,)?
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[doc = ""]
            #[doc = concat!("Hadoop's `", $full, "`.")]
            #[derive(Clone, Copy, Debug, ::prost::Enumeration)]
            #[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
            #[repr(i32)]
            pub enum $name {
                $(
                    $(#[doc = $value_doc])*
                    $value = $number,
                )*
            }
        )*

        pub(crate) const ENUMS: &[&$crate::schema::EnumDesc] = &[$(
            &$crate::schema::EnumDesc {
                full_name: $full,
                rust_name: stringify!($name),
                values: &[$((stringify!($value), $number)),*],
            },
        )*];
    };
}
pub(crate) use wire_enums;
