from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "NVFP4",
        raw("NVFP4", {0: "38 01 7e 7f", 4: "f7", 12: "02", 20: "07", 28: "77"}),
        {0: 6.0, 8: -6.0, 16: 0.001953125, 32: 2688.0},
        rest=0.0,
    )


def test_equals_the_gguf_package() -> None:
    agrees("NVFP4")
