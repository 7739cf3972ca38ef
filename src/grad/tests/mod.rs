//! Tests of derivatives.
