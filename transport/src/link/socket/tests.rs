use std::collections::VecDeque;

use futures::{AsyncReadExt as _, executor::block_on};
use lapin::types::{AMQPValue, FieldTable, parsing::parse_field_table};
use proptest::prelude::*;

use super::{
    content::{Changes, DEPTH_MAX, check_header, check_method},
    *,
};

const CONTENT_HEADER: u8 = 2;
const BODY: u8 = 3;
/// The frame size that RabbitMQ and its clients agree on.
const FRAME_BYTES_MAX: usize = 131_072;

/// Hands out its bytes in pieces, and is not ready before each.
struct Pieces {
    bytes: VecDeque<u8>,
    sizes: VecDeque<usize>,
    ready: bool,
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.ready = !self.ready;
        if self.ready {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let size = self.sizes.pop_front().unwrap_or(usize::MAX);
        let count = size.min(buffer.len()).min(self.bytes.len());
        for (to, from) in buffer.iter_mut().zip(self.bytes.drain(..count)) {
            *to = from;
        }
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns what lapin would read if these bytes came in pieces of these sizes and were read into buffers of this size.
fn read(bytes: &[u8], sizes: Vec<usize>, buffer_bytes: usize) -> io::Result<Vec<u8>> {
    let pieces = Pieces { bytes: bytes.to_vec().into(), sizes: sizes.into(), ready: false };
    let mut socket = Socket::new(AsyncTcpStream::Plain(pieces), Arrivals::new(watch::Sender::new(())));
    let (mut read, mut buffer) = (Vec::new(), vec![0; buffer_bytes]);
    loop {
        match block_on(socket.read(&mut buffer))? {
            0 => return Ok(read),
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind, 0, 1], &length[..], payload, &[0xce]].concat()
}

/// A content header with a type, these headers, and a message id.
fn header(table: &[u8]) -> Vec<u8> {
    let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    payload.extend(0xa080_u16.to_be_bytes());
    payload.extend([1, b'j']);
    payload.extend(counted(table));
    payload.extend([2, b'i', b'd']);
    payload
}

fn table_of(header: &[u8]) -> Option<FieldTable> {
    parse_field_table(&header[16..]).ok().map(|(_, table)| table)
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// The value of a header: this many nested containers, each with these bytes before its contents.
fn nested(depth: usize, kind: u8, name: &[u8]) -> Vec<u8> {
    let level =
        |inside: usize| [name, &[kind], &u32::try_from(inside * (5 + name.len())).unwrap().to_be_bytes()].concat();
    let value: Vec<u8> = (0..depth).rev().flat_map(level).collect();
    value[name.len()..].to_vec()
}

fn nested_tables(depth: usize) -> Vec<u8> {
    nested(depth, b'F', &[0])
}

fn nested_arrays(depth: usize) -> Vec<u8> {
    nested(depth, b'A', &[])
}

fn named(name: &str, value: &[u8]) -> Vec<u8> {
    [&[u8::try_from(name.len()).unwrap()], name.as_bytes(), value].concat()
}

fn depth_of_table(table: &FieldTable) -> usize {
    1 + table.inner().values().map(depth).max().unwrap_or(0)
}

fn depth(value: &AMQPValue) -> usize {
    match value {
        AMQPValue::FieldTable(table) => depth_of_table(table),
        AMQPValue::FieldArray(array) => 1 + array.as_slice().iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[test]
fn the_deepest_headers_that_fit_a_frame_keep_their_shallow_neighbours() {
    let levels = (FRAME_BYTES_MAX - 200) / 6;
    for value in [nested_tables(levels), nested_arrays(levels)] {
        let count = [b'I', 0, 0, 0, 7];
        let table = [named("before", &count), named("deep", &value), named("x-delivery-count", &count)].concat();
        let sent = frame(CONTENT_HEADER, &header(&table));
        assert!(sent.len() <= FRAME_BYTES_MAX);
        let read = read(&sent, vec![], FRAME_BYTES_MAX).unwrap();
        assert_eq!(read.len(), sent.len());
        let table = table_of(&read[7..]).unwrap();
        assert_eq!(depth_of_table(&table), DEPTH_MAX);
        assert_eq!(table.inner()["before"], AMQPValue::LongInt(7));
        assert_eq!(table.inner()["x-delivery-count"], AMQPValue::LongInt(7));
    }
}

#[test]
fn headers_as_deep_as_is_allowed_are_left_alone() {
    let mut payload = header(&named("deep", &nested_tables(DEPTH_MAX - 1)));
    let sent = payload.clone();
    assert_eq!(check_header(&mut payload), Changes::default());
    assert_eq!(payload, sent);
    let mut payload = header(&named("deep", &nested_tables(DEPTH_MAX)));
    assert_eq!(check_header(&mut payload), Changes { tables: 1, texts: 0 });
}

#[test]
fn texts_that_are_not_utf8_are_replaced_and_others_are_not() {
    let mut payload = header(&[named("gr\u{fc}n", b"V"), vec![3, b'a', 0xff, b'b', b'V']].concat());
    assert_eq!(check_header(&mut payload), Changes { tables: 0, texts: 1 });
    let table = table_of(&payload).unwrap();
    let names: Vec<_> = table.inner().keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["a?b", "gr\u{fc}n"]);
    let mut deliver = [&[0, 60, 0, 60, 1, b't', 0, 0, 0, 0, 0, 0, 0, 1, 0, 0][..], &[2, 0xc3, 0x28]].concat();
    assert_eq!(check_method(&mut deliver), Changes { tables: 0, texts: 1 });
    assert!(deliver.ends_with(&[2, b'?', 0x28]));
    let mut tune = [0, 10, 0, 30, 0xff, 0xff, 0, 2, 0, 0, 0, 60];
    assert_eq!(check_method(&mut tune), Changes::default());
}

#[test]
fn an_answer_in_another_protocols_version_passes() {
    assert_eq!(read(b"AMQP\x00\x00\x09\x01", vec![], 64).unwrap(), b"AMQP\x00\x00\x09\x01");
    assert_eq!(read(b"AMQP\x01\x01\x00\x0a", vec![3, 2], 4).unwrap(), b"AMQP\x01\x01\x00\x0a");
    let page = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    assert_eq!(read(page, vec![5], 10).unwrap(), page);
}

#[test]
fn half_a_frame_at_the_end_of_the_stream_is_read_as_it_is() {
    let sent = frame(CONTENT_HEADER, &header(&[]));
    assert_eq!(read(&sent[..20], vec![4], 64).unwrap(), sent[..20]);
}

#[test]
fn a_frame_that_claims_an_absurd_length_ends_the_connection() {
    let error = read(&[CONTENT_HEADER, 0, 1, 0xff, 0xff, 0xff, 0xff, 0], vec![], 64).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

/// A value of a header, often of tables and arrays in one another.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(vec![b'V']),
        any::<i64>().prop_map(|number| [&b"l"[..], &number.to_be_bytes()[..]].concat()),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| [&b"S"[..], &counted(&bytes)[..]].concat()),
    ];
    let shallow = leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| [&b"A"[..], &counted(&items.concat())[..]].concat()),
            proptest::collection::vec(inner, 0..4).prop_map(|items| {
                let fields: Vec<u8> = items.iter().flat_map(|item| named("k", item)).collect();
                [&b"F"[..], &counted(&fields)[..]].concat()
            }),
        ]
    });
    (shallow, proptest::collection::vec(any::<bool>(), 0..2 * DEPTH_MAX)).prop_map(|(innermost, tables)| {
        tables.into_iter().fold(innermost, |value, table| match table {
            true => [&b"F"[..], &counted(&named("", &value))[..]].concat(),
            false => [&b"A"[..], &counted(&value)[..]].concat(),
        })
    })
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let headers = proptest::collection::vec(value(), 0..3).prop_map(|values| {
        frame(CONTENT_HEADER, &header(&values.iter().flat_map(|value| named("h", value)).collect::<Vec<_>>()))
    });
    let others = (prop_oneof![Just(1_u8), Just(BODY), Just(8)], proptest::collection::vec(any::<u8>(), 0..200))
        .prop_map(|(kind, payload)| frame(kind, &payload));
    proptest::collection::vec(prop_oneof![headers, others], 0..8).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn however_the_stream_is_cut_the_same_is_read(
        sent in frames(),
        sizes in proptest::collection::vec(1_usize..50, 0..200),
        buffer_bytes in 1_usize..300,
    ) {
        let whole = read(&sent, vec![], sent.len().max(1)).unwrap();
        prop_assert_eq!(whole.len(), sent.len());
        prop_assert_eq!(read(&sent, sizes, buffer_bytes).unwrap(), whole);
    }

    #[test]
    fn what_lapin_can_read_is_never_too_deep_and_never_lost(
        value in value(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut table = named("h", &value);
        for (at, byte) in damage {
            let at = at.index(table.len());
            table[at] = byte;
        }
        let mut payload = header(&table);
        let before = table_of(&payload);
        let changes = check_header(&mut payload);
        let after = table_of(&payload);
        prop_assert!(after.as_ref().is_none_or(|table| depth_of_table(table) <= DEPTH_MAX));
        prop_assert!(before.is_none() || after.is_some(), "a readable table has become unreadable");
        if changes == Changes::default() {
            prop_assert_eq!(before, after);
        }
    }
}
