//! `printf` of a kernel: the format of C, with the arguments as `vprintf` lays them out in memory.

/// Digits and padding that one conversion may ask for; C promises 4095.
const WIDTH_MAX: usize = 4095;

/// One conversion, from its percent sign to its letter.
#[derive(Debug, Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    wide: bool,
    letter: u8,
}

/// The text, and how many arguments it used. `value` reads bytes at an offset among the arguments, `text` a string.
pub fn format<E>(
    pattern: &[u8],
    value: impl Fn(u64, u64) -> Result<u64, E>,
    text: impl Fn(u64) -> Result<Vec<u8>, E>,
) -> Result<(String, u32), E> {
    let (mut out, mut at, mut offset, mut count) = (Vec::new(), 0, 0u64, 0);
    let mut take = |bytes: u64| -> Result<u64, E> {
        offset = offset.next_multiple_of(bytes);
        offset += bytes;
        value(offset - bytes, bytes)
    };
    while at < pattern.len() {
        if pattern[at] != b'%' {
            out.push(pattern[at]);
            at += 1;
            continue;
        }
        let (mut conversion, length, stars) = parse(&pattern[at..]);
        at += length;
        if stars.0 {
            let width = take(4)? as u32 as i32;
            conversion.left |= width < 0;
            conversion.width = (width.unsigned_abs() as usize).min(WIDTH_MAX);
        }
        if stars.1 {
            conversion.precision = usize::try_from(take(4)? as u32 as i32).ok().map(|p| p.min(WIDTH_MAX));
        }
        let body = match conversion.letter {
            b'%' => vec![b'%'],
            b'd' | b'i' => {
                let raw = if conversion.wide { take(8)? as i64 } else { i64::from(take(4)? as u32 as i32) };
                signed(&conversion, raw < 0, raw.unsigned_abs().to_string())
            }
            b'u' | b'x' | b'X' | b'o' => {
                let raw = if conversion.wide { take(8)? } else { take(4)? & 0xffff_ffff };
                unsigned(&conversion, raw)
            }
            b'c' => vec![take(4)? as u8],
            b'p' => format!("{:#x}", take(8)?).into_bytes(),
            b's' => {
                let address = take(8)?;
                let mut bytes = if address == 0 { b"(null)".to_vec() } else { text(address)? };
                bytes.truncate(conversion.precision.unwrap_or(usize::MAX));
                bytes
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                let raw = f64::from_bits(take(8)?);
                signed(&conversion, raw.is_sign_negative(), float(&conversion, raw.abs()))
            }
            _ => pattern[at - length..at].to_vec(),
        };
        count += u32::from(conversion.letter != b'%');
        pad(&mut out, &conversion, body);
    }
    Ok((String::from_utf8_lossy(&out).into_owned(), count))
}

/// Reads a conversion: what it says, its length, and whether width and precision are arguments.
fn parse(text: &[u8]) -> (Conversion, usize, (bool, bool)) {
    let mut conversion = Conversion::default();
    let mut stars = (false, false);
    let mut at = 1;
    let peek = |at: usize| text.get(at).copied().unwrap_or(0);
    loop {
        match peek(at) {
            b'-' => conversion.left = true,
            b'+' => conversion.plus = true,
            b' ' => conversion.space = true,
            b'#' => conversion.alternate = true,
            b'0' => conversion.zero = true,
            _ => break,
        }
        at += 1;
    }
    let number = |at: &mut usize| {
        let mut value = 0usize;
        while peek(*at).is_ascii_digit() {
            value = (value * 10 + usize::from(peek(*at) - b'0')).min(WIDTH_MAX);
            *at += 1;
        }
        value
    };
    if peek(at) == b'*' {
        stars.0 = true;
        at += 1;
    } else {
        conversion.width = number(&mut at);
    }
    if peek(at) == b'.' {
        at += 1;
        if peek(at) == b'*' {
            stars.1 = true;
            at += 1;
        } else {
            conversion.precision = Some(number(&mut at));
        }
    }
    while matches!(peek(at), b'l' | b'h' | b'z' | b't' | b'j' | b'q') {
        conversion.wide |= peek(at) != b'h';
        at += 1;
    }
    conversion.letter = peek(at);
    (conversion, (at + 1).min(text.len()), stars)
}

fn signed(conversion: &Conversion, negative: bool, digits: String) -> Vec<u8> {
    let sign = if negative {
        "-"
    } else if conversion.plus {
        "+"
    } else if conversion.space {
        " "
    } else {
        ""
    };
    let is_integer = matches!(conversion.letter, b'd' | b'i');
    let least = if is_integer { conversion.precision.unwrap_or(1) } else { 0 };
    format!("{sign}{digits:0>least$}").into_bytes()
}

fn unsigned(conversion: &Conversion, raw: u64) -> Vec<u8> {
    let least = conversion.precision.unwrap_or(1);
    let (prefix, digits) = match conversion.letter {
        b'x' => ("0x", format!("{raw:x}")),
        b'X' => ("0X", format!("{raw:X}")),
        b'o' => ("0", format!("{raw:o}")),
        _ => ("", raw.to_string()),
    };
    let prefix = if conversion.alternate && raw != 0 { prefix } else { "" };
    format!("{prefix}{digits:0>least$}").into_bytes()
}

fn float(conversion: &Conversion, value: f64) -> String {
    let upper = conversion.letter.is_ascii_uppercase();
    if !value.is_finite() {
        let name = if value.is_nan() { "nan" } else { "inf" };
        return if upper { name.to_uppercase() } else { name.to_owned() };
    }
    let precision = conversion.precision.unwrap_or(6);
    let written = match conversion.letter.to_ascii_lowercase() {
        b'f' => format!("{value:.precision$}"),
        b'e' => scientific(value, precision),
        b'g' => general(value, precision.max(1), conversion.alternate),
        _ => hexadecimal(value),
    };
    if upper { written.to_uppercase() } else { written }
}

/// `d.ddde+XX`.
fn scientific(value: f64, precision: usize) -> String {
    let written = format!("{value:.precision$e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn general(value: f64, precision: usize, keep_zeros: bool) -> String {
    let rounded = scientific(value, precision - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let strip = |digits: &str| match digits.contains('.') && !keep_zeros {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    if exponent < -4 || exponent >= precision as i32 {
        let (digits, power) = rounded.split_once('e').unwrap_or((&rounded, "+00"));
        return format!("{}e{power}", strip(digits));
    }
    let places = (precision as i32 - 1 - exponent).max(0) as usize;
    strip(&format!("{value:.places$}"))
}

fn hexadecimal(value: f64) -> String {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let (lead, power) = match (exponent, fraction) {
        (0, 0) => (0, 0),
        (0, _) => (0, -1022),
        _ => (1, exponent - 1023),
    };
    let digits = format!("{fraction:013x}");
    let digits = digits.trim_end_matches('0');
    let point = if digits.is_empty() { "" } else { "." };
    format!("0x{lead}{point}{digits}p{power:+}")
}

fn pad(out: &mut Vec<u8>, conversion: &Conversion, body: Vec<u8>) {
    let missing = conversion.width.saturating_sub(body.len());
    let is_text = matches!(conversion.letter, b's' | b'c' | b'p' | b'%');
    let finite =
        body.last().is_some_and(|byte| !matches!(byte, b'n' | b'f' | b'N' | b'F')) || conversion.letter == b'x';
    if conversion.left {
        out.extend_from_slice(&body);
        out.resize(out.len() + missing, b' ');
    } else if conversion.zero && !is_text && finite {
        let sign = usize::from(matches!(body.first(), Some(b'-' | b'+' | b' ')));
        out.extend_from_slice(&body[..sign]);
        out.resize(out.len() + missing, b'0');
        out.extend_from_slice(&body[sign..]);
    } else {
        out.resize(out.len() + missing, b' ');
        out.extend_from_slice(&body);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::format;

    fn print(pattern: &str, arguments: &[u64]) -> String {
        let value = |offset: u64, _| Ok::<u64, Infallible>(arguments[offset as usize / 8]);
        // Every argument of these tests has 8 bytes.
        format(pattern.as_bytes(), value, |_| Ok(b"text".to_vec())).unwrap().0
    }

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        assert_eq!(print("[%5d] 100%%", &[42]), "[   42] 100%");
        assert_eq!(print("%-6ld|%+ld|%06ld", &[-3i64 as u64, 5, -42i64 as u64]), "-3    |+5|-00042");
        assert_eq!(print("%#llx %llX %lo", &[255, 255, 8]), "0xff FF 10");
        assert_eq!(
            print("%f %.2f %e", &[1.5f64.to_bits(), 2.0f64.to_bits(), 12345.678f64.to_bits()]),
            "1.500000 2.00 1.234568e+04"
        );
        assert_eq!(
            print("%g %g %g", &[0.0001f64.to_bits(), 1e10f64.to_bits(), 100.0f64.to_bits()]),
            "0.0001 1e+10 100"
        );
        assert_eq!(print("%5s|%.2s|%p", &[1, 1, 4096]), " text|te|0x1000");
        assert_eq!(print("%f %5.1f", &[f64::NAN.to_bits(), f64::INFINITY.to_bits()]), "nan   inf");
    }
}
