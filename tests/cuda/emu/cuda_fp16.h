#pragma once /* conversions of half are in cuda_emu.h */
