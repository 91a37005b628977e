from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "Q6_K",
        raw("Q6_K", {0: "51", 64: "0f", 128: "e4", 192: "02 00 01 00 fd 00 80 00 7f", 208: "0038"}),
        {
            range(16): -32.0,
            0: -31.0,
            range(32, 48): -16.0,
            32: -8.0,
            range(64, 80): 48.0,
            64: -7.5,
            range(96, 112): 2048.0,
            96: -1024.0,
            range(128, 144): -2032.0,
            128: -1079.5,
        },
        rest=0.0,
    )


def test_equals_the_gguf_package() -> None:
    agrees("Q6_K")
