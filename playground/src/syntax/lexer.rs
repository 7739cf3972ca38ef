//! Splits a text into tokens.

use super::{Name, NumType};
use crate::error::ErrorResponse;

/// A token, and its position in bytes.
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The kind of a token.
pub(super) enum TokenKind {
    Word(Name),
    Int(i128, NumType),
    Float(f64, NumType),
    Text(Name),
    Char(char),
    Lifetime,
    Mark(&'static str),
    End,
}

/// The marks; longer ones precede their prefixes.
const MARKS: &[&str] = &[
    "..=", "...", "<<=", ">>=", "::", "->", "=>", "==", "!=", "<=", ">=", "&&", "||", "..", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "<<", ">>", "(", ")", "[", "]", "{", "}", ",", ";", ":", ".", "=", "<",
    ">", "+", "-", "*", "/", "%", "&", "|", "^", "!", "?", "#", "@", "$",
];

/// Returns the tokens of a text, of which the last one is the end.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ErrorResponse> {
    let (mut list, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let rest = &text[at..];
        let Some(c) = rest.chars().next() else { break };
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |n| n + 2);
            continue;
        }
        let (kind, size) = token(rest, at)?;
        list.push(Token { kind, from: at, to: at + size });
        at += size;
    }
    list.push(Token { kind: TokenKind::End, from: text.len(), to: text.len() });
    Ok(list)
}

fn token(rest: &str, at: usize) -> Result<(TokenKind, usize), ErrorResponse> {
    let c = rest.chars().next().unwrap_or(' ');
    if c.is_ascii_digit() {
        return number(rest, at);
    }
    if rest.starts_with("r\"") || rest.starts_with("r#\"") {
        return raw_text(rest, at);
    }
    if c.is_alphabetic() || c == '_' {
        let end = word_end(rest);
        return Ok((TokenKind::Word(rest[..end].into()), end));
    }
    if c == '"' {
        return quoted(rest, at);
    }
    if c == '\'' {
        return Ok(char_or_lifetime(rest));
    }
    match MARKS.iter().find(|m| rest.starts_with(**m)) {
        Some(mark) => Ok((TokenKind::Mark(mark), mark.len())),
        None => Err(syntax_error!("`{c}` has no meaning here").at(at, at + c.len_utf8())),
    }
}

fn word_end(text: &str) -> usize {
    text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len())
}

fn raw_text(rest: &str, at: usize) -> Result<(TokenKind, usize), ErrorResponse> {
    let (open, close) = if rest.starts_with("r#") { (3, "\"#") } else { (2, "\"") };
    match rest[open..].find(close) {
        Some(end) => Ok((TokenKind::Text(rest[open..open + end].into()), open + end + close.len())),
        None => Err(syntax_error!("a closing `\"` is expected").at(at, at + 1)),
    }
}

fn quoted(rest: &str, at: usize) -> Result<(TokenKind, usize), ErrorResponse> {
    let (mut text, mut chars) = (String::new(), rest.char_indices().skip(1).peekable());
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Ok((TokenKind::Text(text.into()), i + 1)),
            '\\' => match chars.next().map_or(' ', |(_, c)| c) {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                '0' => text.push('\0'),
                '\n' => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                'u' => {
                    let code: String =
                        chars.by_ref().map(|(_, c)| c).skip(1).take_while(|c| *c != '}').collect();
                    text.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
                }
                other => text.push(other),
            },
            c => text.push(c),
        }
    }
    Err(syntax_error!("a closing `\"` is expected").at(at, at + 1))
}

fn char_or_lifetime(rest: &str) -> (TokenKind, usize) {
    let mut chars = rest.char_indices().skip(1);
    let (first, second) = (chars.next(), chars.next());
    match (first, second) {
        (Some((_, '\\')), Some((_, c))) => {
            let end = chars.find(|(_, c)| *c == '\'').map_or(rest.len(), |(i, _)| i + 1);
            let c = match c {
                'n' => '\n',
                't' => '\t',
                '0' => '\0',
                c => c,
            };
            (TokenKind::Char(c), end)
        }
        (Some((_, c)), Some((i, '\''))) => (TokenKind::Char(c), i + 1),
        _ => (TokenKind::Lifetime, 1 + word_end(&rest[1..])),
    }
}

fn number(rest: &str, at: usize) -> Result<(TokenKind, usize), ErrorResponse> {
    let digits = |t: &str| t.find(|c: char| !(c.is_ascii_digit() || c == '_')).unwrap_or(t.len());
    if let Some((radix, digits)) =
        [(16, "0x"), (2, "0b"), (8, "0o")].iter().find_map(|(r, p)| Some((*r, rest.strip_prefix(p)?)))
    {
        let end = digits.find(|c: char| !(c.is_digit(radix) || c == '_')).unwrap_or(digits.len());
        let value = i128::from_str_radix(&digits[..end].replace('_', ""), radix)
            .map_err(|_| syntax_error!("`{}` is not a number", &rest[..end + 2]).at(at, at + end + 2))?;
        let suffix = suffix(&digits[end..]);
        return Ok((TokenKind::Int(value, suffix.0), end + 2 + suffix.1));
    }
    let (mut end, mut whole) = (digits(rest), true);
    let after = rest[end..].strip_prefix('.');
    if let Some(after) = after.filter(|t| !t.starts_with(|c: char| c == '.' || c.is_alphabetic() || c == '_'))
    {
        end += 1 + digits(after);
        whole = false;
    }
    if let Some(power) = rest[end..].strip_prefix(['e', 'E']) {
        let sign = power.len() - power.trim_start_matches(['-', '+']).len();
        let n = digits(&power[sign..]);
        if n > 0 {
            end += 1 + sign + n;
            whole = false;
        }
    }
    let text = rest[..end].replace('_', "");
    let (ty, size) = suffix(&rest[end..]);
    let wrong = || syntax_error!("`{text}` is not a number of any type").at(at, at + end);
    let float = !whole || matches!(ty, NumType::F32 | NumType::F64);
    let kind = match float {
        true => TokenKind::Float(text.parse().map_err(|_| wrong())?, ty),
        // wider than any type of numbers that programs store
        false => {
            TokenKind::Int(text.parse().ok().filter(|n: &i128| *n <= u64::MAX.into()).ok_or_else(wrong)?, ty)
        }
    };
    Ok((kind, end + size))
}

/// Returns the type that a number ends in, and its length.
fn suffix(text: &str) -> (NumType, usize) {
    let text = text.trim_start_matches('_');
    let end = word_end(text);
    NumType::named(&text[..end]).map_or((NumType::Open, 0), |ty| (ty, end))
}
