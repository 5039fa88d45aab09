//! What the services of one node share.
