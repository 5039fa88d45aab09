//! Good requests, byte by byte, to be spoiled.

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7F).expect("seven bits") | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).expect("seven bits"));
    bytes
}

/// A length-delimited protobuf field.
pub fn field(tag: u64, bytes: &[u8]) -> Vec<u8> {
    [
        varint(tag << 3 | 2),
        varint(bytes.len() as u64),
        bytes.to_vec(),
    ]
    .concat()
}

/// A varint protobuf field.
pub fn number(tag: u64, value: u64) -> Vec<u8> {
    [varint(tag << 3), varint(value)].concat()
}

pub fn operation(code: u8, body: &[u8]) -> Vec<u8> {
    [vec![0, 28, code], varint(body.len() as u64), body.to_vec()].concat()
}

/// Connection header, context and one call, as a client without security sends them.
pub fn rpc_call(method: &str) -> Vec<u8> {
    let protocol = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";
    let frame = |parts: &[Vec<u8>]| {
        let body: Vec<u8> = parts
            .iter()
            .flat_map(|p| [varint(p.len() as u64), p.clone()].concat())
            .collect();
        [
            u32::try_from(body.len())
                .expect("small")
                .to_be_bytes()
                .to_vec(),
            body,
        ]
        .concat()
    };
    let header = |call: u64| {
        [
            number(1, 2),
            number(2, 0),
            number(3, call),
            field(4, &[7; 16]),
        ]
        .concat()
    };
    let context = [
        field(2, &field(1, b"hostile")),
        field(3, protocol.as_bytes()),
    ]
    .concat();
    let request = [
        field(1, method.as_bytes()),
        field(2, protocol.as_bytes()),
        number(3, 1),
    ]
    .concat();
    [
        b"hrpc\x09\x00\x00".to_vec(),
        frame(&[header(5), context]), // call id -3, zigzag
        frame(&[header(0), request, Vec::new()]),
    ]
    .concat()
}
