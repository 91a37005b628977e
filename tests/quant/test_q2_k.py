from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "Q2_K",
        raw("Q2_K", {0: "21 00 03 00 0f 00 f1 00 01", 16: "e4", 48: "02", 80: "003c 0038"}),
        {range(16): -1.0, 32: 3.0, 64: 30.0, range(96, 112): -7.5, 96: -4.5, 128: 2.0},
        rest=0.0,
    )


def test_equals_the_gguf_package() -> None:
    agrees("Q2_K")
