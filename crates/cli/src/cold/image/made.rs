//! Images made for tests, with the messages that Hadoop's have.

use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use hayloft_wire::frame::encode_delimited;
use hayloft_wire::proto::fsimage::*;
use hayloft_wire::proto::hdfs::Block;
use prost::Message;

/// The number that the policy attribute's name gets.
const ATTRIBUTE: u32 = 5;

/// An image under construction.
#[derive(Default)]
pub struct MadeImage {
    inodes: Vec<Inode>,
    entries: Vec<DirEntry>,
    references: Vec<InodeReference>,
    pub codec: Option<String>,
    /// What the head of the inodes says beyond the truth.
    pub more_inodes: u64,
}

/// A file of one block.
pub fn file(id: u64, name: &str, len: u64, modified: u64, accessed: u64) -> Inode {
    Inode {
        r#type: InodeType::File.into(),
        id,
        name: Some(Bytes::copy_from_slice(name.as_bytes())),
        file: Some(InodeFile {
            replication: Some(3),
            modification_time: Some(modified),
            access_time: Some(accessed),
            blocks: vec![Block {
                block_id: id,
                gen_stamp: 1001,
                num_bytes: Some(len),
            }],
            file_uc: None,
            storage_policy_id: None,
        }),
        directory: None,
    }
}

/// A directory, with a policy of its own unless that is 0.
pub fn dir(id: u64, name: &str, modified: u64, policy: u8) -> Inode {
    let attribute = XattrCompact {
        name: (3 << 30) | (ATTRIBUTE << 6),
        value: Some(Bytes::copy_from_slice(&[policy])),
    };
    Inode {
        r#type: InodeType::Directory.into(),
        id,
        name: Some(Bytes::copy_from_slice(name.as_bytes())),
        file: None,
        directory: Some(InodeDirectory {
            modification_time: Some(modified),
            x_attrs: (policy != 0).then(|| XattrFeature {
                x_attrs: vec![attribute],
            }),
        }),
    }
}

impl MadeImage {
    /// Adds an inode.
    pub fn inode(&mut self, inode: Inode) -> &mut Self {
        self.inodes.push(inode);
        self
    }

    /// Says what is in a directory.
    pub fn entry(&mut self, parent: u64, children: &[u64]) -> &mut Self {
        self.entries.push(DirEntry {
            parent: Some(parent),
            children: children.to_vec(),
            ref_children: Vec::new(),
        });
        self
    }

    /// Says that a directory has an inode that a snapshot has too.
    pub fn reference(&mut self, parent: u64, referred: u64) -> &mut Self {
        let number = u32::try_from(self.references.len()).expect("few");
        self.references.push(InodeReference {
            referred_id: Some(referred),
        });
        self.entries.push(DirEntry {
            parent: Some(parent),
            children: Vec::new(),
            ref_children: vec![number],
        });
        self
    }

    /// Writes it to `image` in `dir`.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let mut out = BytesMut::from(&b"HDFSIMG1"[..]);
        let mut sections = Vec::new();
        let strings = StringTableSection {
            num_entry: Some(1),
            mask_bits: None,
        };
        let string = StringTableEntry {
            id: Some(ATTRIBUTE),
            str: Some("hsm.block.storage.policy.id".to_owned()),
        };
        section(
            &mut out,
            &mut sections,
            "STRING_TABLE",
            Some(&strings),
            &[string],
        );
        let head = InodeSection {
            last_inode_id: Some(1 << 20),
            num_inodes: Some(self.inodes.len() as u64 + self.more_inodes),
        };
        section(&mut out, &mut sections, "INODE", Some(&head), &self.inodes);
        let none = None::<&InodeSection>;
        section(
            &mut out,
            &mut sections,
            "INODE_REFERENCE",
            none,
            &self.references,
        );
        section(&mut out, &mut sections, "INODE_DIR", none, &self.entries);
        let summary = FileSummary {
            ondisk_version: 1,
            layout_version: 4_294_967_230,
            codec: self.codec.clone(),
            sections,
        };
        let before = out.len();
        encode_delimited(&summary, &mut out);
        let length = u32::try_from(out.len() - before).expect("short");
        out.extend_from_slice(&length.to_be_bytes());
        let path = dir.join("image");
        std::fs::write(&path, &out).expect("written");
        path
    }
}

fn section<H: Message, M: Message>(
    out: &mut BytesMut,
    sections: &mut Vec<ImageSection>,
    name: &str,
    head: Option<&H>,
    messages: &[M],
) {
    let offset = out.len();
    if let Some(head) = head {
        encode_delimited(head, out);
    }
    for message in messages {
        encode_delimited(message, out);
    }
    sections.push(ImageSection {
        name: Some(name.to_owned()),
        length: Some((out.len() - offset) as u64),
        offset: Some(offset as u64),
    });
}
