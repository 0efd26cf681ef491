//! What a client sends on a connection, made from bytes: frames of HTTP/2 or messages of HTTP/1.1, most of them valid in
//! most of their parts.

use arbitrary::{Arbitrary, Result, Unstructured};

/// The first bytes of a client of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The maximum number of times that a part is repeated.
const REPEATED_MAX: usize = 300;

// Types of frames.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

/// Header blocks, and parts of them.
const BLOCKS: [&[u8]; 14] = [
    // `:method: POST`, `:scheme: http`, and the path of one of the services of the test.
    b"\x83\x86\x44\x05/read",
    b"\x83\x86\x44\x07/ignore",
    b"\x83\x86\x44\x05/wait",
    // Authorities, which are stored: a valid one and a URL.
    b"\x41\x06node:1",
    b"\x41\x0dhttp://node:1",
    // Fields that were stored before, or exist not.
    b"\xbe",
    b"\xbf\xc0",
    // A new size of the table, also one that is too large.
    b"\x20",
    b"\x3f\xe1\x1f",
    b"\x3f\xff\xff\xff\x7f",
    // A field with Huffman codes, one that is never stored, one whose length is wrong.
    b"\x40\x01a\x83\x1c\x64\x5f",
    b"\x10\x01b\x01c",
    b"\x40\x7f\xff\xff\xff\x0fa",
    b"\x00\x0acontent-length\x0299",
];

/// Parts of requests over HTTP/1.1.
const LINES: [&[u8]; 26] = [
    b"POST /read HTTP/1.1\r\n",
    b"POST /ignore HTTP/1.1\r\n",
    b"POST /wait HTTP/1.1\r\n",
    b"GET /read HTTP/1.0\r\n",
    b"GET http://node/read HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n\r\n",
    b"Host: node\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 5, 6\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked, identity\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"Expect: 100-continue\r\n",
    b"x: \0\r\n y\r\n",
    b"x: y\n",
    b"\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"0\r\nContent-Length: 1\r\n\r\n",
    b"ffffffffffffffff1\r\n",
    b"5;x=y\r\nhello",
    b"hello",
];

/// A step of a client.
#[derive(Debug)]
pub(crate) enum Step {
    /// Sends bytes, as far as the server reads them.
    Send(Vec<u8>),
    /// Reads what the server has sent.
    Read,
    /// Lets some seconds pass.
    Wait(u8),
    /// Sends nothing more.
    End,
}

/// Decodes steps until the bytes end.
pub(crate) fn steps(bytes: &[u8]) -> Vec<Step> {
    let mut input = Unstructured::new(bytes);
    let mut steps = Vec::new();
    let Ok(is_http2) = input.ratio(2, 3) else {
        return steps;
    };
    if is_http2 {
        let settings = frame(SETTINGS, 0, 0, &[]);
        steps.push(Step::Send([PREFACE, &settings].concat()));
    }
    while !input.is_empty() {
        match step(&mut input, is_http2) {
            Ok(step) => steps.push(step),
            Err(_) => break,
        }
    }
    steps
}

fn step(input: &mut Unstructured<'_>, is_http2: bool) -> Result<Step> {
    Ok(match input.int_in_range(0..=15)? {
        0 => Step::Read,
        1 => Step::Wait(u8::arbitrary(input)?),
        2 if input.ratio(1, 4)? => Step::End,
        3 => Step::Send(bytes(input)?),
        _ => {
            let mut part = if is_http2 {
                any_frame(input)?
            } else {
                input.choose(&LINES)?.to_vec()
            };
            match input.int_in_range(0..=19)? {
                0 => part = part.repeat(input.int_in_range(1..=REPEATED_MAX)?),
                1 => part.truncate(input.int_in_range(0..=part.len())?),
                2 if !part.is_empty() => {
                    let position = input.choose_index(part.len())?;
                    part[position] = u8::arbitrary(input)?;
                }
                _ => {}
            }
            Step::Send(part)
        }
    })
}

/// Returns a few bytes, or many equal ones.
fn bytes(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let length = input.int_in_range(0..=12)?;
    let bytes = input.bytes(length.min(input.len()))?.to_vec();
    Ok(if input.ratio(1, 10)? {
        bytes.repeat(input.int_in_range(1..=2_000)?)
    } else {
        bytes
    })
}

fn any_frame(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    // Streams are few, so that frames concern the same ones.
    let stream: u32 = match input.int_in_range(0..=9)? {
        0 => 0,
        9 => u32::arbitrary(input)?,
        number => 2 * number - 1,
    };
    let kind = match input.int_in_range(0..=15)? {
        10..=13 => HEADERS,
        14 => CONTINUATION,
        15 => u8::arbitrary(input)?,
        kind => kind,
    };
    let (flags, payload) = match kind {
        HEADERS | CONTINUATION => (*input.choose(&[4, 5, 5, 0, 1, 0xc, 0x24])?, block(input)?),
        // Values of PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE with the right length.
        2 => (0, input.bytes(5)?.to_vec()),
        3 | 8 => (0, vec![0, 0, input.bytes(1)?[0], input.bytes(1)?[0]]),
        4 => (0, setting(input)?),
        6 => (*input.choose(&[0, 0, 1])?, vec![7; 8]),
        7 => (0, vec![0; 8]),
        _ => (*input.choose(&[0, 1, 1, 8])?, bytes(input)?),
    };
    let flags = if input.ratio(1, 20)? {
        u8::arbitrary(input)?
    } else {
        flags
    };
    // Some of these types concern the connection.
    let stream = if [4, 6, 7].contains(&kind) && input.ratio(9, 10)? {
        0
    } else {
        stream
    };
    Ok(frame(kind, flags, stream, &payload))
}

fn setting(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut payload = Vec::new();
    for _ in 0..input.int_in_range(0..=3)? {
        payload.extend([0, input.int_in_range(0..=9)?]);
        let value =
            *input.choose(&[0, 1, 100, 16_384, 65_535, 1 << 20, u32::MAX >> 1, u32::MAX])?;
        payload.extend(u32::to_be_bytes(value));
    }
    Ok(payload)
}

fn block(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut block = input.choose(&BLOCKS)?.to_vec();
    for _ in 0..input.int_in_range(0..=4)? {
        match input.int_in_range(0..=9)? {
            0 => block.extend(bytes(input)?),
            // One byte can stand for a large field.
            1 => block.extend([0xbe].repeat(input.int_in_range(0..=4_000)?)),
            2 => {
                block.extend(b"\x40\x01x\x7f\xa1\x1e");
                block.extend([b'v'; 4_000]);
            }
            _ => block.extend(*input.choose(&BLOCKS)?),
        }
    }
    Ok(block)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let [_, length @ ..] = length;
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
