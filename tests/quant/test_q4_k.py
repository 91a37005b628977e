from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "Q4_K",
        raw("Q4_K", {0: "003c 0038", 4: "85 02", 8: "41", 12: "23", 16: "7f", 80: "02"}),
        {range(32): -0.5, 0: 74.5, 32: 14.0, range(128, 160): -9.0, 128: 61.0},
        rest=0.0,
    )


def test_equals_the_gguf_package() -> None:
    agrees("Q4_K")
