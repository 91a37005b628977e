from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "Q5_K",
        raw("Q5_K", {0: "003c 0038", 4: "85 02", 8: "41", 12: "23", 16: "11", 48: "7f", 112: "02"}),
        {range(32): -0.5, 0: 154.5, 32: 14.0, range(128, 160): -9.0, 128: 621.0},
        rest=0.0,
    )


def test_equals_the_gguf_package() -> None:
    agrees("Q5_K")
