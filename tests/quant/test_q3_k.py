from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "Q3_K",
        raw("Q3_K", {0: "21", 32: "03", 64: "02", 96: "f1", 104: "32", 108: "0038"}),
        {range(16): -2.0, 0: 1.5, range(128, 144): -62.0, 128: -31.0, 160: 0.0},
        rest=64.0,
    )


def test_equals_the_gguf_package() -> None:
    agrees("Q3_K")
