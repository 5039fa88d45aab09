//! The sources against servers that answer as the clouds' documentation says, and badly.

mod ec2;
mod fake;
mod kubernetes;
mod others;
mod rounds;
mod tls;
