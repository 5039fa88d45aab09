//! Whether the block token of a request permits it, and what its sender hears when it does not.
//!
//! | Operation | Mode | Storages |
//! |---|---|---|
//! | READ_BLOCK, checksums, descriptors | READ | |
//! | WRITE_BLOCK | WRITE | own and targets' types; ids where targets' come |
//! | TRANSFER_BLOCK | COPY | targets' types and ids |
//! | COPY_BLOCK | COPY | |
//! | REPLACE_BLOCK | REPLACE | own type and id |

use std::slice;

use hayloft_wire::block_token::AccessMode;
use hayloft_wire::ids::{ExtendedBlock, StorageType};
use hayloft_wire::proto::datatransfer::{BaseHeader, OpReplaceBlock, OpTransferBlock};
use hayloft_wire::transfer::{BlockOpResponse, OpRequest, Status, WriteRequest};

use super::context::Xceivers;
use super::error::XferError;
use super::net::conn::Conn;
use crate::security::{Access, TokenRefused};

/// Checks the token of a request before anything else is done for it. At once where the NameNodes
/// have tokens off.
///
/// # Errors
/// The request is refused. Its sender was told, unless it is a node that copies a block, which
/// expects no answer. The connection is to be closed.
pub async fn check(x: &Xceivers, conn: &Conn, request: &OpRequest) -> Result<(), XferError> {
    if x.link().block_tokens().are_off() {
        return Ok(());
    }
    let Some(asked) = Asked::by(request) else {
        return Ok(());
    };
    // The keys come with the registration of the pool.
    x.wait_ready(&asked.block.pool).await?;
    let Err(refused) = asked.checked(x) else {
        return Ok(());
    };
    if let Some(answer) = asked.refusal(x) {
        conn.write_message(&answer).await?;
    }
    Err(refused.into())
}

/// Whether [`check`] lets a request pass with the keys that are here now. Its sender hears nothing.
pub fn permits(x: &Xceivers, request: &OpRequest) -> bool {
    Asked::by(request).is_none_or(|asked| asked.checked(x).is_ok())
}

/// What a request asks for, and who is answered how.
struct Asked<'a> {
    block: &'a ExtendedBlock,
    header: &'a BaseHeader,
    access: Access,
    /// Its sender waits for an answer.
    answered: bool,
}

impl<'a> Asked<'a> {
    /// `None`: the request names no block, or is not served to anyone.
    fn by(request: &'a OpRequest) -> Option<Self> {
        let read = || Access::to(AccessMode::Read);
        let (block, header, access) = match request {
            OpRequest::WriteBlock(request) => return Some(Self::by_writer(request)),
            OpRequest::ReadBlock(r) => (&r.block, &r.message.header.base_header, read()),
            OpRequest::BlockChecksum(r) => (&r.block, &r.message.header, read()),
            OpRequest::BlockGroupChecksum(r) => (&r.block, &r.message.header, read()),
            OpRequest::CopyBlock(r) => (&r.block, &r.message.header, Access::to(AccessMode::Copy)),
            OpRequest::TransferBlock(r) => (
                &r.block,
                &r.message.header.base_header,
                transfer(&r.message),
            ),
            OpRequest::ReplaceBlock(r) => (&r.block, &r.message.header, replace(&r.message)),
            OpRequest::RequestShortCircuitFds(r) => (&r.block, &r.message.header, read()),
            OpRequest::RequestShortCircuitShm(_)
            | OpRequest::ReleaseShortCircuitFds(_)
            | OpRequest::Custom(_) => return None,
        };
        Some(Self {
            block,
            header,
            access,
            answered: true,
        })
    }

    fn by_writer(request: &'a WriteRequest) -> Self {
        let message = &request.message;
        let targets = &message.target_storage_types;
        let own = slice::from_ref(&request.storage_type);
        // The last node of a pipeline is sent no ids of targets, and its own is not checked.
        let storage_ids = match &message.target_storage_ids[..] {
            [] => Vec::new(),
            targets => {
                let own = message.storage_id.clone().unwrap_or_default();
                [slice::from_ref(&own), targets].concat()
            }
        };
        Self {
            block: &request.block,
            header: &message.header.base_header,
            access: Access {
                mode: AccessMode::Write,
                storage_types: [own, &types(targets)].concat(),
                storage_ids,
            },
            answered: !message.header.client_name.is_empty(),
        }
    }

    fn checked(&self, x: &Xceivers) -> Result<(), TokenRefused> {
        let (tokens, token) = (x.link().block_tokens(), self.header.token.as_ref());
        tokens.check(token, self.block, &self.access)
    }

    /// What the sender is told; `None`: nothing.
    fn refusal(&self, x: &Xceivers) -> Option<BlockOpResponse> {
        if !self.answered {
            return None;
        }
        let status = Status::ErrorAccessToken;
        if self.access.mode != AccessMode::Write {
            return Some(BlockOpResponse::of(status));
        }
        let own = x.link().identity(&self.block.pool);
        let own = own.map(|own| own.xfer_addr()).unwrap_or_default();
        Some(BlockOpResponse::pipeline(status, own))
    }
}

fn types(from_wire: &[i32]) -> Vec<StorageType> {
    let types = from_wire.iter();
    types
        .map(|&number| StorageType::from_wire(Some(number)))
        .collect()
}

fn transfer(message: &OpTransferBlock) -> Access {
    Access {
        mode: AccessMode::Copy,
        storage_types: types(&message.target_storage_types),
        storage_ids: message.target_storage_ids.clone(),
    }
}

fn replace(message: &OpReplaceBlock) -> Access {
    Access {
        mode: AccessMode::Replace,
        storage_types: vec![StorageType::from_wire(message.storage_type)],
        storage_ids: vec![message.storage_id.clone().unwrap_or_default()],
    }
}
